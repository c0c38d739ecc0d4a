package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TaskSpec is an everyday kind.
type TaskSpec struct {
	// Schedule is a cron expression.
	// +kubebuilder:validation:MinLength=9
	Schedule string `json:"schedule"`
	// +kubebuilder:validation:Enum=Allow;Forbid;Replace
	// +kubebuilder:default=Allow
	// +optional
	ConcurrencyPolicy string `json:"concurrencyPolicy,omitempty"`
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
	// ClusterIP is an address.
	// +kubebuilder:validation:Format=ipv4
	// +optional
	ClusterIP string `json:"clusterIP,omitempty"`
	// +kubebuilder:validation:Format=uri
	// +optional
	URL string `json:"url,omitempty"`
	// +kubebuilder:validation:Format=uuid
	// +optional
	ID string `json:"id,omitempty"`
}

// Task is an everyday kind.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tk
type Task struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              TaskSpec `json:"spec"`
	// +optional
	Status ScalarsStatus `json:"status,omitempty"`
}
