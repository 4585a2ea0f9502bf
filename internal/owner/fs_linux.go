package owner

import "syscall"

// networkFileSystem names the kind of the folder's file system if it is one whose locks other
// machines may not see; empty otherwise. Numbers from statfs(2).
func networkFileSystem(data string) string {
	var st syscall.Statfs_t
	if syscall.Statfs(data, &st) != nil {
		return ""
	}
	switch uint32(st.Type) { //nolint:gosec // the kernel's magic numbers have 32 bits
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
