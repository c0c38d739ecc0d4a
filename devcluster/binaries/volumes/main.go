// Command volumes is the dynamic provisioner of the devcluster: a volume is a directory of the node that the scheduler
// chose. All nodes are on one machine, so the directories are made right here, without a helper pod on the node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const provisionerName = "devcluster.steersman.dev/directory"

type directories struct {
	root string // holds one directory for each node, in it "volumes", in it one directory for each volume
}

func (d directories) node(name string) string {
	return filepath.Join(d.root, name, "volumes")
}

// Provision makes the directory, open to every user: the processes of a pod are not root's.
func (d directories) Provision(_ context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	refuse := func(err error) (*v1.PersistentVolume, controller.ProvisioningState, error) {
		return nil, controller.ProvisioningFinished, err
	}
	spec := options.PVC.Spec
	if options.SelectedNodeName == "" {
		return refuse(errors.New("no node was selected: the storage class needs volumeBindingMode WaitForFirstConsumer"))
	}
	for _, mode := range spec.AccessModes {
		if mode != v1.ReadWriteOnce && mode != v1.ReadWriteOncePod {
			return refuse(fmt.Errorf("access mode %s: a directory of one node can be ReadWriteOnce or ReadWriteOncePod", mode))
		}
	}
	if spec.Selector != nil {
		return refuse(errors.New("a claim with a selector takes existing volumes only"))
	}
	path := filepath.Join(d.node(options.SelectedNodeName), options.PVName)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return refuse(err)
	}
	if err := os.Chmod(path, 0o777); err != nil { // after the umask
		return refuse(err)
	}
	return d.volume(options, path), controller.ProvisioningFinished, nil
}

func (d directories) volume(options controller.ProvisionOptions, path string) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			MountOptions:                  options.StorageClass.MountOptions,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: options.PVC.Spec.Resources.Requests[v1.ResourceStorage]},
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{
					Key:      v1.LabelHostname,
					Operator: v1.NodeSelectorOpIn,
					Values:   []string{options.SelectedNodeName},
				}},
			}}}},
		},
	}
}

// Delete removes the directory of a volume, and refuses any path that Provision would not have made.
func (d directories) Delete(_ context.Context, volume *v1.PersistentVolume) error {
	local := volume.Spec.Local
	if local == nil || filepath.Base(local.Path) != volume.Name {
		return fmt.Errorf("volume %s has no directory of its own name", volume.Name)
	}
	known, err := filepath.Match(filepath.Join(d.root, "*", "volumes", "*"), filepath.Clean(local.Path))
	if err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("volume %s: %s is not below %s", volume.Name, local.Path, d.root)
	}
	return os.RemoveAll(local.Path)
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	root := flag.String("root", "", "directory with one directory for each node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		klog.Exitf("kubeconfig: %v", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		klog.Exitf("client: %v", err)
	}
	controller.NewProvisionController(
		ctx, client, provisionerName, directories{root: *root}, controller.LeaderElection(false),
	).Run(ctx)
}
