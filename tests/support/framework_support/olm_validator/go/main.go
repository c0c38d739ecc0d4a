// Command verify holds a bundle to the rules of the Operator Framework, and prints what it found as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	"github.com/operator-framework/api/pkg/validation/errors"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
)

// What OLM demands, what OperatorHub demands, and what is good practice. Left out are validators that are deprecated,
// that pull images, or that are about formats before bundles.
var validators = interfaces.Validators{
	validation.ClusterServiceVersionValidator,
	validation.CustomResourceDefinitionValidator,
	validation.BundleValidator,
	validation.OperatorHubV2Validator,
	validation.StandardCapabilitiesValidator,
	validation.StandardCategoriesValidator,
	validation.ObjectValidator,
	validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
}

type findings struct {
	Errors   []string `json:"errors"`
	Warnings []string `json:"warnings"`
}

func main() {
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	objects := append(bundle.ObjectsToValidate(), map[string]string{"k8s-version": "1.36"})
	found := findings{Errors: []string{}, Warnings: []string{}}
	for _, result := range validators.Validate(objects...) {
		found.Errors = append(found.Errors, texts(result.Errors)...)
		found.Warnings = append(found.Warnings, texts(result.Warnings)...)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		panic(err)
	}
}

func texts(found []errors.Error) []string {
	said := []string{}
	for _, each := range found {
		said = append(said, each.Error())
	}
	return said
}
