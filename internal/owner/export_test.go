package owner

import (
	"path/filepath"
	"time"
)

// NetworkKind is tested without such file systems.
var NetworkKind = networkKind

// A test waits for an owner that does not answer; a folder of this name lies on NFS.
const NetworkFolder = "on-nfs"

func init() {
	giveUp, answersWithin = 3*time.Second, 500*time.Millisecond
	real := networkFileSystem
	networkFileSystem = func(data string) string {
		if filepath.Base(data) == NetworkFolder {
			return "NFS"
		}
		return real(data)
	}
}
