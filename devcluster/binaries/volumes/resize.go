package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const lookEvery = 2 * time.Second

// resizer grows volumes whose claims have been made larger. What it leaves in the claim's status asks the kubelet to grow
// the file system (kubernetes.io/docs/concepts/storage/persistent-volumes, "Expanding Persistent Volumes Claims").
type resizer struct {
	client kubernetes.Interface
}

func (r resizer) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		claims, err := r.client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
		if err != nil {
			klog.Errorf("resize: %v", err)
			return
		}
		for i := range claims.Items {
			if err := r.resize(ctx, &claims.Items[i]); err != nil {
				klog.Errorf("resize %s/%s: %v", claims.Items[i].Namespace, claims.Items[i].Name, err)
			}
		}
	}, lookEvery)
}

func (r resizer) resize(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	wanted := claim.Spec.Resources.Requests[v1.ResourceStorage]
	has := claim.Status.Capacity[v1.ResourceStorage]
	if claim.Status.Phase != v1.ClaimBound || wanted.Cmp(has) <= 0 {
		return nil
	}
	volume, err := r.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if capacity := volume.Spec.Capacity[v1.ResourceStorage]; wanted.Cmp(capacity) > 0 {
		if volume.Annotations["pv.kubernetes.io/provisioned-by"] != provisionerName || !isLimited(volume) {
			return nil
		}
		if err := (limited{filepath.Dir(volume.Spec.Local.Path)}).grow(wanted.Value()); err != nil {
			return err
		}
		volume.Spec.Capacity[v1.ResourceStorage] = wanted
		if _, err := r.client.CoreV1().PersistentVolumes().Update(ctx, volume, metav1.UpdateOptions{}); err != nil {
			return err
		}
		klog.Infof("resize %s/%s: %s is %s now", claim.Namespace, claim.Name, volume.Name, wanted.String())
	}
	return r.askKubelet(ctx, claim)
}

func (r resizer) askKubelet(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	status := &claim.Status
	if status.AllocatedResourceStatuses[v1.ResourceStorage] != "" {
		return nil // it knows
	}
	status.AllocatedResources = v1.ResourceList{v1.ResourceStorage: claim.Spec.Resources.Requests[v1.ResourceStorage]}
	status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
		v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending,
	}
	status.Conditions = append(status.Conditions, v1.PersistentVolumeClaimCondition{
		Type:               v1.PersistentVolumeClaimFileSystemResizePending,
		Status:             v1.ConditionTrue,
		LastTransitionTime: metav1.Now(),
		Message:            "Waiting for the kubelet to grow the file system of a pod's volume",
	})
	_, err := r.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	return nil
}
