package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VersionedSpec is the newest form.
type VersionedSpec struct {
	HostPort string `json:"hostPort"`
}

// Versioned has three versions.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
type Versioned struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VersionedSpec `json:"spec"`
	// +optional
	Status ScalarsStatus `json:"status,omitempty"`
}
