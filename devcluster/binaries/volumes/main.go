// Command volumes is the dynamic provisioner of the devcluster: a volume is a directory of the node that the scheduler
// chose or, with the class's parameter limited, a file system of the claim's size. All nodes are on one machine, so
// they are made right here, without a helper pod on the node.
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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
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
	size := options.PVC.Spec.Resources.Requests[v1.ResourceStorage]
	if options.StorageClass.Parameters["limited"] == "true" {
		if size.CmpInt64(smallest) < 0 {
			size = *resource.NewQuantity(smallest, resource.BinarySI)
		}
		made := limited{path}
		if err := made.create(size.Value()); err != nil {
			return refuse(err)
		}
		local := &v1.LocalVolumeSource{Path: made.device(), FSType: ptr.To("xfs")}
		return volume(options, local, size), controller.ProvisioningFinished, nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return refuse(err)
	}
	if err := os.Chmod(path, 0o777); err != nil { // after the umask
		return refuse(err)
	}
	return volume(options, &v1.LocalVolumeSource{Path: path}, size), controller.ProvisioningFinished, nil
}

func volume(options controller.ProvisionOptions, local *v1.LocalVolumeSource, size resource.Quantity) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			MountOptions:                  options.StorageClass.MountOptions,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: size},
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: local},
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

func isLimited(volume *v1.PersistentVolume) bool {
	return volume.Spec.Local != nil && volume.Spec.Local.FSType != nil
}

// Delete removes the directory of a volume, and refuses any path that Provision would not have made.
func (d directories) Delete(_ context.Context, volume *v1.PersistentVolume) error {
	if volume.Spec.Local == nil {
		return fmt.Errorf("volume %s is not local", volume.Name)
	}
	path := filepath.Clean(volume.Spec.Local.Path)
	if isLimited(volume) {
		path = filepath.Dir(path)
	}
	if filepath.Base(path) != volume.Name {
		return fmt.Errorf("volume %s has no directory of its own name", volume.Name)
	}
	known, err := filepath.Match(filepath.Join(d.root, "*", "volumes", "*"), path)
	if err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("volume %s: %s is not below %s", volume.Name, path, d.root)
	}
	if isLimited(volume) {
		return limited{path}.delete()
	}
	return os.RemoveAll(path)
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
	go resizer{client}.run(ctx)
	controller.NewProvisionController(
		ctx, client, provisionerName, directories{root: *root}, controller.LeaderElection(false),
	).Run(ctx)
}
