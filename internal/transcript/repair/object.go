package repair

import (
	"encoding/json"
	"fmt"

	"belay/internal/jsontext"
)

// Object builds a record member by member, in the order in which an agent writes them.
type Object struct {
	from []byte
	old  jsontext.Container
	text []byte
}

// NewObject begins one. From is a record from which members can be kept; it may be nil.
func NewObject(from []byte) *Object {
	o := &Object{from: from, text: []byte{'{'}}
	if len(from) > 0 {
		o.old = jsontext.Read(from, 0)
	}
	return o
}

// Set adds a member.
func (o *Object) Set(key string, value any) *Object {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("member %s has no JSON form: %v", key,
			err)) // strings, numbers and parts of records always have one
	}
	return o.add(key, data)
}

// Keep adds members of the other record as they stand there; one that it does not have is left out.
func (o *Object) Keep(keys ...string) *Object {
	for _, key := range keys {
		if m, ok := o.old.Find(key); ok && m.End > 0 {
			o.add(key, o.from[m.Value:m.End])
		}
	}
	return o
}

func (o *Object) add(key string, value []byte) *Object {
	if len(o.text) > 1 {
		o.text = append(o.text, ',')
	}
	name, _ := json.Marshal(key) // a string always has a JSON form
	o.text = append(append(append(o.text, name...), ':'), value...)
	return o
}

// Bytes is the whole object.
func (o *Object) Bytes() []byte { return append(o.text[:len(o.text):len(o.text)], '}') }
