package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Observed is what every status has.
type Observed struct {
	// The metadata.generation that this status describes.
	// +optional
	ObservedGeneration *int64 `json:"observedGeneration,omitempty"`
	// The latest observations of the object's state.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
