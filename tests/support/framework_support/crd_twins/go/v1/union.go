package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// HTTP is a probe by HTTP.
type HTTP struct {
	Path string `json:"path"`
}

// TCP is a probe by TCP.
type TCP struct {
	Port int64 `json:"port"`
}

// Probe is one of several.
// +kubebuilder:validation:ExactlyOneOf=http;tcp
// +kubebuilder:validation:AtMostOneOf=period;every
type Probe struct {
	// +optional
	HTTP *HTTP `json:"http,omitempty"`
	// +optional
	TCP *TCP `json:"tcp,omitempty"`
	// +optional
	Period *int64 `json:"period,omitempty"`
	// +optional
	Every *string `json:"every,omitempty"`
}

// Source is one that its type names.
// +kubebuilder:validation:XValidation:rule="(self.type == 'HTTP') == has(self.http) && (self.type == 'TCP') == has(self.tcp)",message="of http and tcp, set the one that type names, and no other",reason=FieldValueInvalid
type Source struct {
	// +kubebuilder:validation:Enum=HTTP;TCP
	Type string `json:"type"`
	// +optional
	HTTP *HTTP `json:"http,omitempty"`
	// +optional
	TCP *TCP `json:"tcp,omitempty"`
}

// UnionSpec has unions: structs with one member set.
// +kubebuilder:validation:AtLeastOneOf=probe;source
type UnionSpec struct {
	// +optional
	Probe *Probe `json:"probe,omitempty"`
	// +optional
	Source *Source `json:"source,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() < 9)",message="names are short",messageExpression="self.size() == 1 ? 'its name is long' : 'a name is long'"
	// +kubebuilder:validation:MaxProperties=8
	// +optional
	Sources map[string]Source `json:"sources,omitempty"`
}

// Union has unions: structs with one member set.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() < 9",message="the name is too long",fieldPath=".spec.probe"
type Union struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              UnionSpec `json:"spec"`
	// +optional
	Status ScalarsStatus `json:"status,omitempty"`
}
