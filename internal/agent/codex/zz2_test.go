package codex
import "belay/internal/agent"
func srcOf(p string) agent.Source { return agent.Source{Path:p,Session:threadOne} }
