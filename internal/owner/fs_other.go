//go:build !linux

package owner

// networkFileSystem is known on Linux only.
var networkFileSystem = func(string) string { return "" }
