// Command pause holds a pod's namespaces until it is told to end. As process 1 of the pod it ignores SIGCHLD, so that
// the kernel reaps what the pod's containers orphan.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signal.Ignore(syscall.SIGCHLD)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
}
