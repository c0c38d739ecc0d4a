package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Mode is how it runs.
// +kubebuilder:validation:Enum=fast;safe
type Mode string

// EnumsSpec has closed sets of values.
type EnumsSpec struct {
	// +kubebuilder:default=safe
	// +optional
	Mode Mode `json:"mode,omitempty"`
	// +kubebuilder:validation:Enum=a;b;c
	Letter string `json:"letter"`
	// +kubebuilder:validation:Enum=1;2;3
	// +optional
	Level int64 `json:"level,omitempty"`
}

// EnumsStatus says what was chosen.
type EnumsStatus struct {
	Observed `json:",inline"`
	// +kubebuilder:validation:Enum=Pending;Ready
	// +optional
	Phase string `json:"phase,omitempty"`
}

// Choice has closed sets of values.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ch;cho,categories=all;twins
// +kubebuilder:printcolumn:name="Letter",type=string,JSONPath=`.spec.letter`,description="The letter."
// +kubebuilder:printcolumn:name="Level",type=integer,JSONPath=`.spec.level`,priority=1,format=int64
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.letter`
// +kubebuilder:metadata:annotations="example.com/a=b",labels="example.com/c=d"
type Choice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              EnumsSpec `json:"spec"`
	// +optional
	Status EnumsStatus `json:"status,omitempty"`
}
