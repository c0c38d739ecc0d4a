package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Backup says where backups go.
type Backup struct {
	// +kubebuilder:default=7
	// +optional
	KeepDays int64 `json:"keepDays,omitempty"`
	// +optional
	Schedule Schedule `json:"schedule,omitempty"`
}

// Schedule says when.
type Schedule struct {
	// +kubebuilder:default="0 0 * * *"
	// +optional
	Cron string `json:"cron,omitempty"`
}

// NestedSpec has structs within structs.
type NestedSpec struct {
	// +kubebuilder:default={}
	// +optional
	Backup Backup `json:"backup,omitempty"`
	// Another one.
	// +optional
	Other *Backup `json:"other,omitempty"`
	// +kubebuilder:default={"keepDays":3}
	// +optional
	Third  Backup   `json:"third,omitempty"`
	Needed Schedule `json:"needed"`
}

// Nested has structs within structs.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Nested struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              NestedSpec `json:"spec"`
	// +optional
	Status ScalarsStatus `json:"status,omitempty"`
}
