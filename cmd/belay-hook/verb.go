package main

// verbCall is the command line of the verb form.
type verbCall struct {
	name, agent, session string
	socket               string
	flags                []flag // all others, for the daemon
}

type flag struct {
	name   string
	text   string
	isText bool // else it is true
}

// asks says whether the verb's caller wants to read something: then a missing daemon is waited for.
func (v verbCall) asks() bool {
	switch v.name {
	case "check-sparse", "check-full", "status", "recover":
		return true
	}
	return false
}

// takesValue names the flags whose value may be the next word. Any other can be given as --flag=value.
func takesValue(name string) bool {
	switch name {
	case "session",
		"agent",
		"name",
		"id",
		"text",
		"input",
		"transcript",
		"socket",
		"format",
		"max-bytes",
		"max-messages",
		"since",
		"roles":
		return true
	}
	return false
}

func parseVerb(args []string, session string) verbCall {
	v := verbCall{session: session}
	for i := 0; i < len(args); i++ {
		name, value, has := cutFlag(args[i])
		if name == "" {
			if v.name == "" {
				v.name = cut(args[i], maxWord)
			}
			continue
		}

		if !has && takesValue(name) && i+1 < len(args) {
			i++
			value, has = args[i], true
		}

		value = cut(value, maxText)
		switch name {
		case "session":
			v.session = value
		case "agent":
			v.agent = value
		case "socket":
			v.socket = value
		default:
			v.flags = append(v.flags, flag{name: cut(name, maxWord), text: value, isText: has})
		}
	}

	return v
}

// cutFlag takes --name and --name=value apart; name is empty for a plain word.
func cutFlag(arg string) (name, value string, has bool) {
	if len(arg) < 3 || arg[0] != '-' || arg[1] != '-' {
		return "", "", false
	}

	arg = arg[2:]
	for i := 0; i < len(arg); i++ {
		if arg[i] == '=' {
			return arg[:i], arg[i+1:], true
		}
	}

	return arg, "", false
}
