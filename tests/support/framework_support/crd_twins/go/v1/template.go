package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TemplateSpec has whole pods and claims.
type TemplateSpec struct {
	Template corev1.PodTemplateSpec `json:"template"`
	// +optional
	Claims []corev1.PersistentVolumeClaim `json:"claims,omitempty"`
}

// Template has whole pods and claims.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Template struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              TemplateSpec `json:"spec"`
	// +optional
	Status ScalarsStatus `json:"status,omitempty"`
}
