// Package api is the kind that every peer works on: benchmarks.steersman.dev/v1, Work.
package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var groupVersion = schema.GroupVersion{Group: "benchmarks.steersman.dev", Version: "v1"}

// AddToScheme teaches a scheme the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(groupVersion, &Work{}, &WorkList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return nil
}

// WorkSpec contains the text of the ConfigMap.
type WorkSpec struct {
	Text string `json:"text"`
}

// WorkStatus contains the name of the created ConfigMap and the start of this generation's reconcile.
type WorkStatus struct {
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	ConfigMap          string `json:"configMap,omitempty"`
	StartedAt          int64  `json:"startedAt,omitempty"`
}

// Work is something to do.
type Work struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WorkSpec   `json:"spec"`
	Status WorkStatus `json:"status,omitempty"`
}

// WorkList is a list of Work.
type WorkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Work `json:"items"`
}

// DeepCopyInto copies into out; spec and status hold no references.
func (in *Work) DeepCopyInto(out *Work) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
}

// DeepCopyObject implements runtime.Object.
func (in *Work) DeepCopyObject() runtime.Object {
	out := new(Work)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (in *WorkList) DeepCopyObject() runtime.Object {
	out := new(WorkList)
	*out = *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	if in.Items != nil {
		out.Items = make([]Work, len(in.Items))
		for i := range in.Items {
			in.Items[i].DeepCopyInto(&out.Items[i])
		}
	}
	return out
}
