package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Below this mkfs.xfs refuses.
const smallest = 300 << 20

// limited is a volume of limited size, in a directory of its own: a sparse file, and a link to the loop device over it.
// The kubelet mounts the device, and grows the file system when the device has grown.
//
// XFS, since it grows while mounted without CAP_SYS_RESOURCE, which machines that are containers themselves may not have.
type limited struct {
	directory string
}

func (v limited) image() string  { return filepath.Join(v.directory, "image") }
func (v limited) device() string { return filepath.Join(v.directory, "device") }

func run(name string, arguments ...string) (string, error) {
	output, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, output)
	}
	return strings.TrimSpace(string(output)), nil
}

// create makes a file system of so many bytes whose root is open to every user. It may be called again after a failure.
func (v limited) create(bytes int64) error {
	if err := v.delete(); err != nil {
		return err
	}
	if err := os.MkdirAll(v.directory, 0o755); err != nil {
		return err
	}
	image, err := os.Create(v.image())
	if err != nil {
		return err
	}
	defer image.Close()
	if err := image.Truncate(bytes); err != nil {
		return err
	}
	if _, err := run("mkfs.xfs", "-q", v.image()); err != nil {
		return err
	}
	device, err := run("losetup", "--find", "--show", v.image())
	if err != nil {
		return err
	}
	if err := os.Symlink(device, v.device()); err != nil {
		return err
	}
	return v.open(device)
}

func (v limited) open(device string) error {
	root := filepath.Join(v.directory, "root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount(device, root, "xfs", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", device, err)
	}
	return errors.Join(os.Chmod(root, 0o777), syscall.Unmount(root, 0), os.Remove(root))
}

// grow makes the device so many bytes large.
func (v limited) grow(bytes int64) error {
	if err := os.Truncate(v.image(), bytes); err != nil {
		return err
	}
	_, err := run("losetup", "--set-capacity", v.device())
	return err
}

func (v limited) delete() error {
	device, err := os.Readlink(v.device())
	if errors.Is(err, fs.ErrNotExist) {
		return os.RemoveAll(v.directory)
	}
	if err != nil {
		return err
	}
	// the number may by now be somebody else's
	attached, err := run("losetup", "--noheadings", "--output", "BACK-FILE", device)
	if err == nil && attached == v.image() {
		if _, err := run("losetup", "--detach", device); err != nil {
			return err
		}
	}
	return os.RemoveAll(v.directory)
}
