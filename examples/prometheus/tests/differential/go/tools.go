//go:build tools

// Package tools requires prometheus-operator, with which the operator is compared.
package tools

import _ "github.com/prometheus-operator/prometheus-operator/cmd/operator"
