// Package v1beta1 has a former form of one kind.
//
// +kubebuilder:object:generate=true
// +groupName=twins.example.com
package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VersionedSpec is an earlier version.
type VersionedSpec struct {
	Host string `json:"host"`
	Port int64  `json:"port"`
}

// VersionedStatus is empty.
type VersionedStatus struct {
	// The metadata.generation that this status describes.
	// +optional
	ObservedGeneration *int64 `json:"observedGeneration,omitempty"`
	// The latest observations of the object's state.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// The metadata.generation that this status describes.
	// +optional
	ObservedGeneration *int64 `json:"observedGeneration,omitempty"`
	// The latest observations of the object's state.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	Count *int64 `json:"count,omitempty"`
}

// Versioned has three versions.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:deprecatedversion:warning="use twins.example.com/v1"
type Versioned struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VersionedSpec `json:"spec"`
	// +optional
	Status VersionedStatus `json:"status,omitempty"`
}
