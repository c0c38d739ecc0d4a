// Command toolbox is the pause process of every pod, the first process of every machine of the devcluster, and the
// small client and server that the cluster's own tests put into pods. It is static and needs nothing around it.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const usage = `toolbox COMMAND
  pause               wait for SIGTERM, reaping orphans
  serve ADDRESS       answer every HTTP request with this host's name
  get URL             print the body of a response
  connect ADDRESS     open a TCP connection and close it
  lookup NAME         print the addresses of a name, one a line, sorted
  write FILE TEXT     write a file durably
  read FILE           print a file
  fill FILE MEBIBYTES write a file of that size durably
`

const patience = 5 * time.Second

func pause() error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return nil
		}
		for {
			child, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if child <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

func serve(address string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{Addr: address, ReadHeaderTimeout: patience, Handler: http.HandlerFunc(
		func(response http.ResponseWriter, request *http.Request) {
			fmt.Fprintln(os.Stdout, request.Method, request.URL.Path)
			fmt.Fprintln(response, name)
		})}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Println("serving on", address)
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return nil
}

func get(url string) error {
	client := http.Client{Timeout: patience}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

func connect(address string) error {
	connection, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return err
	}
	fmt.Println("connected to", connection.RemoteAddr())
	return connection.Close()
}

func lookup(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	slices.Sort(addresses)
	fmt.Println(strings.Join(addresses, "\n"))
	return nil
}

func write(path, text string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return file.Close()
}

func read(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

func fill(path, mebibytes string) error {
	count, err := strconv.Atoi(mebibytes)
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	chunk := make([]byte, 1<<20)
	for range count {
		if _, err := file.Write(chunk); err != nil {
			return err
		}
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return file.Close()
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 1 && arguments[0] == "pause":
		return pause()
	case len(arguments) == 2 && arguments[0] == "serve":
		return serve(arguments[1])
	case len(arguments) == 2 && arguments[0] == "get":
		return get(arguments[1])
	case len(arguments) == 2 && arguments[0] == "connect":
		return connect(arguments[1])
	case len(arguments) == 2 && arguments[0] == "lookup":
		return lookup(arguments[1])
	case len(arguments) == 2 && arguments[0] == "read":
		return read(arguments[1])
	case len(arguments) == 3 && arguments[0] == "write":
		return write(arguments[1], arguments[2])
	case len(arguments) == 3 && arguments[0] == "fill":
		return fill(arguments[1], arguments[2])
	}
	return fmt.Errorf("%s: unknown command %q\n%s", filepath.Base(os.Args[0]), arguments, usage)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
