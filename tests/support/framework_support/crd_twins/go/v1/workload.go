package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WorkloadSpec can be scaled.
type WorkloadSpec struct {
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// Source is taken from here.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the field is immutable: create a new object instead",reason=FieldValueInvalid
	Image string `json:"image"`
}

// WorkloadStatus reports the running replicas.
type WorkloadStatus struct {
	Observed `json:",inline"`
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// +optional
	Selector string `json:"selector,omitempty"`
}

// Workload can be scaled.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Workload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WorkloadSpec `json:"spec"`
	// +optional
	Status WorkloadStatus `json:"status,omitempty"`
}
