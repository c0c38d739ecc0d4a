// Package v1 has the types whose Python twins are in the package around this module, one kind a file.
//
// +kubebuilder:object:generate=true
// +groupName=twins.example.com
package v1
