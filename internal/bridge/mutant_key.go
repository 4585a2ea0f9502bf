//go:build mutant_key_per_try

package bridge

import "github.com/google/uuid"

// keyOfTry makes another key for each try, so that a call whose answer was lost is done twice.
func keyOfTry(string) string { return uuid.NewString() }
