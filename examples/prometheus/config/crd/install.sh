#!/bin/sh
# Installs the CRDs of this directory, except those of another owner such as prometheus-operator.
set -eu
cd "$(dirname "$0")/bases"
for file in *.yaml; do
    plural=${file#*_}
    crd="${plural%.yaml}.${file%%_*}"
    owner=$(kubectl get crd "$crd" --ignore-not-found \
        --output 'jsonpath={.metadata.name} {.metadata.labels.app\.kubernetes\.io/managed-by}')
    case $owner in
    "")
        # Unlike apply, create never overwrites a CRD that appears meanwhile.
        kubectl create --filename "$file"
        ;;
    *" monitoring-operator")
        kubectl apply --server-side --filename "$file"
        ;;
    *)
        echo "$crd exists and is not of monitoring-operator: it is kept, and the operator uses it."
        ;;
    esac
done
for file in *.yaml; do
    plural=${file#*_}
    kubectl wait --for condition=Established --timeout 60s "crd/${plural%.yaml}.${file%%_*}"
done
