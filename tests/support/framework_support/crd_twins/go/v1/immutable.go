package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FixedSpec never changes.
// +kubebuilder:validation:XValidation:rule="has(self.region) == has(oldSelf.region)",message="region is immutable, it can neither be added nor removed: create a new object instead",reason=FieldValueInvalid,fieldPath=".region"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.address) || has(self.address)",message="address cannot be removed once it is set: create a new object instead",reason=FieldValueInvalid,fieldPath=".address"
type FixedSpec struct {
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the field is immutable: create a new object instead",reason=FieldValueInvalid
	Engine string `json:"engine"`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the field is immutable: create a new object instead",reason=FieldValueInvalid
	// +optional
	Region *string `json:"region,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the field cannot be changed once it is set: create a new object instead",reason=FieldValueInvalid
	// +optional
	Address *string `json:"address,omitempty"`
	// +kubebuilder:default=gold
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the field is immutable: create a new object instead",reason=FieldValueInvalid
	// +optional
	Class string `json:"class,omitempty"`
	// +kubebuilder:validation:XValidation:rule="!oldSelf.hasValue() || self >= oldSelf.value()",message="it only grows",reason=FieldValueInvalid,optionalOldSelf=true
	Size int64 `json:"size"`
}

// Fixed never changes.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Fixed struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              FixedSpec `json:"spec"`
	// +optional
	Status ScalarsStatus `json:"status,omitempty"`
}
