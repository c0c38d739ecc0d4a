// Command kstatus computes the status of objects with the library of kstatus. It reads and prints a JSON array.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type result struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	objects := []map[string]any{}
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		fail(err)
	}
	results := []result{}
	for _, object := range objects {
		// The conversions of the library expect int64, as the JSON decoder of apimachinery returns it.
		content, err := json.Marshal(object)
		if err != nil {
			fail(err)
		}
		decoded := &unstructured.Unstructured{}
		if err := decoded.UnmarshalJSON(content); err != nil {
			fail(err)
		}
		computed, err := status.Compute(decoded)
		if err != nil {
			fail(err)
		}
		results = append(results, result{computed.Status.String(), computed.Message})
	}
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
