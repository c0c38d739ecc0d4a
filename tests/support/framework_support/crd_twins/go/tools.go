//go:build tools

// Package twins pins controller-gen, which the test builds.
package twins

import _ "sigs.k8s.io/controller-tools/cmd/controller-gen"
