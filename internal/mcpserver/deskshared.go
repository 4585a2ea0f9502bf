package mcpserver

import "fmt"

// The tools of a thread are the team's. The desk's own endpoint serves four of them too, where nobody
// accepts and no inbox is: there they read as the desk speaks. Where all sets are served together they
// read as the team's.
var deskShared = []tool{
	reworded("view_thread", "Read the whole conversation of a handoff",
		"Read one handoff with its messages, that you made with initiate_handoff or took with redeem_continuation: what was asked, who wrote what, how it ended. "+
			"get_handoff_status tells what is new and can wait for it; use this for the whole. "+
			"status is in other words here: pending = OPEN, accepted = CLAIMED, declined = REJECTED. Marks the returned messages read. "+
			"While has_more is true, call again with after_sequence_no = next_sequence_no; all but messages stands on the first page only. Not yours: not_found.",
		map[string]string{"thread_id": "The handoff_id."}),
	reworded("send_message", "Add a message to the thread",
		"Add a message to the thread of a handoff that you made or redeemed and that has not ended. "+
			"Mode human: it shows on the person's page, and nobody is notified; to notify them use reply_to_person. "+
			"Mode agent: so its two sides talk, each reading the other's by get_handoff_status. "+
			"It cannot be edited or taken back, and a repeat without idempotency_key adds it twice. "+
			"Refused, with nothing added: not_found, thread_terminal, teammate_blocked, content_too_large, not_owner (expects_reply by another than the holder).",
		map[string]string{
			"thread_id": "The handoff_id.", "body": "Plain text.", "expects_reply": "Holder only: a question that you wait for; get_handoff_status brings the answer.",
			"idempotency_key": "Your own word for this message.",
		}),
	reworded("complete_handoff", "Deliver the result of what you took over",
		"End a handoff that you hold after redeem_continuation, with what came of it; also when you cannot do it: then say so. "+
			"This is for good, and whoever made it reads the result. In mode human only the person completes. "+
			"Ask or report with send_message before. Repeating the same delivery changes nothing. "+
			"Refused, nothing changed: not_owner (you do not hold it), thread_terminal, stale_claim_epoch or lease_lost (it was given to another), content_too_large.",
		map[string]string{
			"thread_id": "The handoff_id of redeem_continuation.", "result_summary": "What was done, and what was not.",
			"claim_epoch": "Of redeem_continuation, or of view_thread if the operator gave it to you; needed if above 1.", "idempotency_key": "Your own word for this call.",
		}),
	reworded("cancel_handoff", "Take back a handoff that nobody has taken",
		"Take back a handoff that you made with initiate_handoff, for good, while it is OPEN: the user no longer needs it. "+
			"A link that was not redeemed stops working, a mail that did not go out yet is not sent; one that went out stays, and its page says that the request was taken back. "+
			"Once it is CLAIMED it is invalid_transition: tell its holder with reply_to_person or send_message. "+
			"Repeating it changes nothing. Also refused: not_found, not_owner, thread_terminal.",
		map[string]string{
			"thread_id": "The handoff_id of initiate_handoff.", "reason": "Why; the person's page shows it.", "idempotency_key": "Your own word for this call.",
		}),
}

// reworded gives a tool of the team to the desk's endpoint with another title and description, and other
// words for the parameters that are named.
func reworded(name, title, desc string, words map[string]string) tool {
	for _, t := range teamTools {
		if t.name != name {
			continue
		}
		t.set, t.twin, t.title, t.desc = "desk", true, title, desc
		t.params = append([]param(nil), t.params...)
		left := len(words)
		for i := range t.params {
			if desc, ok := words[t.params[i].name]; ok {
				t.params[i].desc = desc
				left--
			}
		}
		if left > 0 {
			panic(fmt.Sprintf("%s has no such parameters: %v", name, words))
		}
		return t
	}
	panic("the team has no tool " + name)
}
