//go:build tools

// Package seaweedfs pins the S3 server of the tests, which tests/support/seaweedfs.py builds and starts.
package seaweedfs

import _ "github.com/seaweedfs/seaweedfs/weed"
