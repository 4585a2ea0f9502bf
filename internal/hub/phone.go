package hub

import (
	"strings"

	"github.com/nyaruka/phonenumbers"

	"handclasp/internal/handoff"
)

// e164 reads a telephone number, in the region where it is written nationally. A national number
// without a region is refused: it would be called in another country.
func e164(field, number, region string) (string, error) {
	international := strings.HasPrefix(strings.TrimSpace(number), "+")
	if !international && region == "" {
		return "", handoff.Invalid(field, "a national number came without a region; give it with its country code, such as +49 30 901820, or name the region it is of, such as DE")
	}
	n, err := phonenumbers.Parse(number, region)
	if err != nil || !phonenumbers.IsValidNumber(n) || n.GetExtension() != "" {
		where := "with its country code"
		if !international {
			where = "of the region " + region
		}
		return "", handoff.Invalid(field, "it is no valid telephone number "+where+"; one such as +49 30 901820 is accepted, without an extension")
	}
	return phonenumbers.Format(n, phonenumbers.E164), nil
}

// checkRegion reads a region: two letters, in any case.
func checkRegion(region string) (string, error) {
	upper := strings.ToUpper(region)
	if upper == "" || phonenumbers.GetSupportedRegions()[upper] {
		return upper, nil
	}
	return "", handoff.Invalid("region", handoff.Quote(region)+" came; the two letters of a country are accepted, such as DE")
}
