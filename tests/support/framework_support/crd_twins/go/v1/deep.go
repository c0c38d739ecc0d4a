package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Rack has a name.
// +kubebuilder:validation:XValidation:rule="self.slots >= oldSelf.slots",message="a rack never shrinks",reason=FieldValueInvalid,fieldPath=".slots"
type Rack struct {
	Name string `json:"name"`
	// +kubebuilder:validation:Maximum=48
	Slots int64 `json:"slots"`
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Ports []Port `json:"ports,omitempty"`
}

// DeepSpec has rules and bounds at every depth.
type DeepSpec struct {
	// The racks, by their names.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Racks []Rack `json:"racks,omitempty"`
	// +kubebuilder:validation:items:XValidation:rule="self != 'none'",message="none is reserved",reason=FieldValueInvalid
	// +kubebuilder:validation:items:MaxLength=9
	// +kubebuilder:validation:MaxItems=9
	// +optional
	Rooms []string `json:"rooms,omitempty"`
	// +optional
	Nested map[string]map[string][]Port `json:"nested,omitempty"`
}

// Deep has rules and bounds at every depth.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Deep struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              DeepSpec `json:"spec"`
	// +optional
	Status ScalarsStatus `json:"status,omitempty"`
}
