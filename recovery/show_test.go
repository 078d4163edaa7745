package recovery
import ("testing";"fmt";"os";"strings";"belay/checkpoint")
func TestShow(t *testing.T) {
	if os.Getenv("SHOW")=="" { t.Skip("x") }
	b := fromFile(t, "O01-many-turns.jsonl").decision("keep the old parser").call("c1", "Bash", `{"command":"orgctl create Acme"}`).done("c1")
	cp := b.checkpoint(3)
	b.user("please look at the build again").answer("It is green. "+strings.Repeat("And there is more to say. ", 60)).user("Now release it, but ask before you push.").call("c2", "Bash", `{"command":"make release"}`)
	b.dies()
	for _, m := range []int{200, 400, 1000, 2048, 9000} {
		r := plan(t, Input{State: b.s, Checkpoint: cp}, Options{MaxBytes: m})
		fmt.Println("=====", m, len(r.Text), r.Omitted); fmt.Println(r.Text)
	}
	r := plan(t, Input{State: b.s, Checkpoint: cp}, Options{Format: Delta, Roles: []checkpoint.Role{"user","assistant","tool"}})
	fmt.Println(r.Text)
}
