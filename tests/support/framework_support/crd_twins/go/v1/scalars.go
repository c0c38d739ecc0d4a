package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ScalarsSpec has every scalar, with bounds.
type ScalarsSpec struct {
	// Number of items.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Count int64 `json:"count"`
	// A small number.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:ExclusiveMinimum=true
	// +kubebuilder:validation:Maximum=9
	// +kubebuilder:validation:ExclusiveMaximum=true
	// +optional
	Small *int32 `json:"small,omitempty"`
	// +kubebuilder:validation:MultipleOf=5
	// +kubebuilder:default=10
	// +optional
	Step int64 `json:"step,omitempty"`
	// +kubebuilder:validation:Minimum=0.5
	// +optional
	Ratio *float64 `json:"ratio,omitempty"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]+$`
	Name string `json:"name"`
	// +kubebuilder:validation:Format=hostname
	// +optional
	Host string `json:"host,omitempty"`
	// +kubebuilder:default=true
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// +kubebuilder:default=false
	// +optional
	Paused *bool `json:"paused,omitempty"`
	// +optional
	Key []byte `json:"key,omitempty"`
	// +optional
	Start *metav1.Time `json:"start,omitempty"`
	// +kubebuilder:title=A comment
	// +kubebuilder:example="like this"
	// +optional
	Comment string `json:"comment,omitempty"`
	// +kubebuilder:default=""
	// +optional
	Prefix *string `json:"prefix,omitempty"`
	// +nullable
	// +optional
	Owner *string `json:"owner,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="flavour is immutable",reason=FieldValueForbidden
	Flavour string `json:"flavour"`
}

// ScalarsStatus is empty but for a number.
type ScalarsStatus struct {
	Observed `json:",inline"`
	// +optional
	Count *int64 `json:"count,omitempty"`
}

// Scalars has every scalar.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Scalars struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ScalarsSpec `json:"spec"`
	// +optional
	Status ScalarsStatus `json:"status,omitempty"`
}
