package owner

import "syscall"

// networkFileSystem names the kind of the folder's file system if it is one whose locks other
// machines may not see; empty otherwise.
var networkFileSystem = func(data string) string { // a test has no such file system
	var st syscall.Statfs_t
	if syscall.Statfs(data, &st) != nil {
		return ""
	}
	return networkKind(uint32(st.Type)) //nolint:gosec // the kernel's magic numbers have 32 bits
}

// networkKind knows the numbers of statfs(2).
func networkKind(magic uint32) string {
	switch magic {
	case 0x6969:
		return "NFS"
	case 0xff534d42, 0x517b, 0xfe534d42:
		return "SMB"
	case 0x5346414f:
		return "AFS"
	case 0x00c36400:
		return "Ceph"
	}
	return ""
}
