package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BuiltinsSpec has types of Kubernetes' own.
type BuiltinsSpec struct {
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`
	// +optional
	Secret *corev1.LocalObjectReference `json:"secret,omitempty"`
	// +optional
	Key *corev1.SecretKeySelector `json:"key,omitempty"`
	// +optional
	Service *corev1.ServiceSpec `json:"service,omitempty"`
	// +optional
	Ref *corev1.ObjectReference `json:"ref,omitempty"`
	// +optional
	Claim *corev1.PersistentVolumeClaimSpec `json:"claim,omitempty"`
	// +optional
	Security *corev1.PodSecurityContext `json:"security,omitempty"`
}

// BuiltinsStatus has conditions.
type BuiltinsStatus struct {
	Observed `json:",inline"`
}

// Builtins has types of Kubernetes' own.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Builtins struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              BuiltinsSpec `json:"spec"`
	// +optional
	Status BuiltinsStatus `json:"status,omitempty"`
}
