package v1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Loose keeps what it does not know.
// +kubebuilder:pruning:PreserveUnknownFields
type Loose struct {
	// +optional
	Known string `json:"known,omitempty"`
}

// OpenSpec has values that are not, or hardly, described.
type OpenSpec struct {
	// +optional
	Port intstr.IntOrString `json:"port,omitempty"`
	// +kubebuilder:default="1Gi"
	// +optional
	Size resource.Quantity `json:"size,omitempty"`
	// +optional
	Limits map[string]resource.Quantity `json:"limits,omitempty"`
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// +optional
	Anything *apiextensionsv1.JSON `json:"anything,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Values *runtime.RawExtension `json:"values,omitempty"`
	// +kubebuilder:validation:EmbeddedResource
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Object *runtime.RawExtension `json:"object,omitempty"`
	// +optional
	Loose *Loose `json:"loose,omitempty"`
}

// Open has values that are not, or hardly, described.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Open struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              OpenSpec `json:"spec"`
	// +optional
	Status ScalarsStatus `json:"status,omitempty"`
}
