//go:build !mutant_key_per_try

package bridge

// Mutants are bugs that a test-only build tag plants, one at a time, to prove that the tests
// which must catch them do (scripts/mutants). This is the program without any.

func keyOfTry(key string) string { return key }
