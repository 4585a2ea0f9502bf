//go:build !linux

package owner

// networkFileSystem is known on Linux only.
func networkFileSystem(string) string { return "" }
