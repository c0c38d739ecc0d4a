package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Port is one port.
type Port struct {
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Number int64 `json:"number"`
	// +kubebuilder:default=TCP
	// +optional
	Protocol string `json:"protocol,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
}

// Pair is compared as a whole.
// +structType=atomic
type Pair struct {
	Left  string `json:"left"`
	Right string `json:"right"`
}

// ListsSpec has lists and maps of every kind.
type ListsSpec struct {
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Arguments []string `json:"arguments,omitempty"`
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:Pattern=`^[a-z]+$`
	Zones []string `json:"zones"`
	// +listType=map
	// +listMapKey=number
	// +listMapKey=protocol
	// +optional
	Ports []Port `json:"ports,omitempty"`
	// +listType=set
	// +optional
	Pairs []Pair `json:"pairs,omitempty"`
	// +mapType=atomic
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Counts map[string]int64 `json:"counts,omitempty"`
	// +kubebuilder:default={"x","y"}
	// +optional
	Letters []string `json:"letters,omitempty"`
	// +kubebuilder:default={}
	// +optional
	Nothing []string `json:"nothing,omitempty"`
	// +kubebuilder:default={"a":"b"}
	// +optional
	Defaults map[string]string `json:"defaults,omitempty"`
	// +optional
	Matrix [][]int64 `json:"matrix,omitempty"`
	// +optional
	ByName map[string]Pair `json:"byName,omitempty"`
}

// Lists has lists and maps of every kind.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=listings,singular=listing
type Lists struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ListsSpec `json:"spec"`
	// +optional
	Status ScalarsStatus `json:"status,omitempty"`
}
