package lines

import (
	"context"
	"slices"

	"belay/checkpoint"
)

// First sight of a transcript that is larger than firstWhole gives its head and its newest part only.
const (
	firstWhole   = 256 << 10
	firstHead    = 1 << 20 // how far the first prompt is looked for
	firstPrompts = 20
	firstBytes   = 4 << 20  // of records; one record counts at most
	firstRecord  = 64 << 10 // so many, or a huge tool result would push out the user's words
	firstRaw     = 32 << 20 // how many bytes are looked at, whatever they are
)

func isPrompt(e checkpoint.Entry) bool     { return isSaid(e, checkpoint.EntryUser) }
func isAnswer(e checkpoint.Entry) bool     { return isSaid(e, checkpoint.EntryAssistant) }
func isCompaction(e checkpoint.Entry) bool { return e.Kind == checkpoint.EntryCompaction }
func isClear(e checkpoint.Entry) bool      { return e.Kind == checkpoint.EntryClear }

// isSaid says that an entry is words of the session's own conversation.
func isSaid(e checkpoint.Entry, kind checkpoint.EntryKind) bool {
	return e.Op == checkpoint.Upsert && e.Kind == kind && !e.Aside && e.Text != "" && e.Child == "" && e.Session == ""
}

// firstSight gives the head up to the first prompt, and the newest part.
func (r *Reader[S, P]) firstSight(ctx context.Context, opt checkpoint.ReadOptions) (checkpoint.Batch, error) {
	size, err := r.src.Size(ctx)
	if err != nil {
		return checkpoint.Batch{}, err
	}
	if size <= firstWhole {
		return r.forward(ctx, *new(S), opt)
	}

	head, end := r.page(*new(S)), int64(0)
	span, err := r.src.Read(ctx, Pos{}, Options{Max: firstHead}, func(l Line) bool {
		end = l.End
		head.Line(ctx, l)
		return !head.has(isPrompt)
	})

	if err != nil {
		return checkpoint.Batch{}, err
	}

	state := head.State
	if r.format.Gap != nil {
		r.format.Gap(&state)
	}

	start, err := r.newest(ctx, size, state)
	if err != nil {
		return checkpoint.Batch{}, err
	}
	if start <= end {
		r.seen = NewSeen(seenIDs)
		return r.forward(ctx, *new(S), opt)
	}

	if *P(&state).Position(), err = r.src.At(ctx, start); err != nil {
		return checkpoint.Batch{}, err
	}

	r.complete = false
	batch, err := r.forward(ctx, state, opt)
	if err != nil {
		return checkpoint.Batch{}, err
	}

	batch.Entries = append(headEntries(head.Entries), batch.Entries...)
	batch.Skipped = start - end
	span.Losses.Add(head.Losses)
	span.Losses.Add(batch.Losses)
	batch.Losses = span.Losses
	return batch, nil
}

// headEntries are what is kept of a file's head: the prompt that ends it, and what it says of workspace, model and
// mode.
func headEntries(list []checkpoint.Entry) (kept []checkpoint.Entry) {
	work := ""
	for _, e := range list {
		if work == "" && e.Session == "" {
			work = e.Workspace
		}
		if e.Kind == checkpoint.EntryMeta || isPrompt(e) {
			kept = append(kept, e)
		}
	}

	if work == "" || slices.ContainsFunc(kept, func(e checkpoint.Entry) bool { return e.Workspace != "" }) {
		return kept
	}
	if last := len(kept) - 1; last >= 0 {
		kept[last].Workspace = work
		return kept
	}

	return []checkpoint.Entry{{Kind: checkpoint.EntryMeta, Workspace: work}}
}

// newest finds where the newest part begins: enough prompts or a compaction end it, but not before an answer of the
// model's was met, since that is what a recovery needs most. Nothing before a clear is ever given.
func (r *Reader[S, P]) newest(ctx context.Context, size int64, s S) (start int64, err error) {
	start = size
	prompts, bytes, enough, answered := 0, 0, false, false
	err = r.src.Backward(ctx, size, firstRaw, func(l Line) bool {
		start = l.Off
		if r.format.Skip != nil && r.format.Skip(l.Data) {
			return true
		}

		bytes += min(len(l.Data), firstRecord)
		if r.format.Marks == nil || r.format.Marks(l.Data, answered) {
			list := r.format.Entries(ctx, s, l)
			if slices.ContainsFunc(list, isPrompt) {
				prompts++
			}

			answered = answered || slices.ContainsFunc(list, isAnswer)
			enough = enough || prompts >= firstPrompts || slices.ContainsFunc(list, isCompaction)
			if slices.ContainsFunc(list, isClear) {
				return false
			}
		}

		return bytes < firstBytes && !(enough && answered)
	})

	return start, err
}
