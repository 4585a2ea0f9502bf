package webui

import "net/http"

// scriptPolicy is contentPolicy for the one page that needs a script: what follows the # of a join
// link never reaches the hub by itself, which is why programs that look at links use none up.
const scriptPolicy = contentPolicy + "; script-src 'self'; connect-src 'self'"

// join serves the page of every join link, the same for all. Its script shows what the link says
// and sends it off at the press of a button.
func (s *site) join(publicURL string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", scriptPolicy)
		s.show(w, r, http.StatusOK, joinPage, page{Title: "Join", Body: publicURL})
	}
}
