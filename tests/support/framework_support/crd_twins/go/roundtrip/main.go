// Reads a CustomResourceDefinition of v1beta1 from standard input and writes what its Go type keeps of it.
package main

import (
	"encoding/json"
	"log"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
)

func main() {
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	var definition v1beta1.CustomResourceDefinition
	if err := decoder.Decode(&definition); err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(definition); err != nil {
		log.Fatal(err)
	}
}
