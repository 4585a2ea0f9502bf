package hub_test

import (
	"slices"
	"strings"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func business(f *hubtest.Fixture, in hub.BusinessInput) {
	f.T.Helper()
	_, err := f.Hub.AddBusiness(bg, hubtest.Operator(), in)
	noError(f.T, err)
}

func initiate(f *hubtest.Fixture, call hub.Call, in hub.InitiateInput) hub.Initiated {
	f.T.Helper()
	if in.Slug == "" {
		in.Slug = "shop"
	}
	if in.Mode == "" {
		in.Mode = "human"
	}
	out, err := f.Hub.Initiate(bg, call, in)
	noError(f.T, err)
	return out
}

// tokenIn is the token at the end of a person's link.
func tokenIn(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

func does(f *hubtest.Fixture, token string, act hub.PersonAct, text string) {
	f.T.Helper()
	noError(f.T, f.Hub.PersonDoes(bg, hub.PersonInput{Token: token, Act: act, Text: text}))
}

func deskStatus(f *hubtest.Fixture, call hub.Call, id string) hub.DeskStatus {
	f.T.Helper()
	s, err := f.Hub.DeskStatus(bg, call, hub.StatusInput{HandoffID: id})
	noError(f.T, err)
	return s
}

// withoutSecrets leaves out the settings: a secret may be made at its first use.
func withoutSecrets(rows []string) []string {
	return slices.DeleteFunc(slices.Clone(rows), func(row string) bool { return strings.HasPrefix(row, "settings") })
}
