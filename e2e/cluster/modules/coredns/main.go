// Command coredns is the DNS server of the test cluster: CoreDNS with the five plugins that a cluster needs, which
// build in a fraction of the time of the full set.
package main

import (
	"github.com/coredns/coredns/coremain"

	// The order in which they run is CoreDNS's own (core/dnsserver/zdirectives.go).
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	coremain.Run()
}
