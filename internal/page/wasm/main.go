//go:build js && wasm

// Program wasm answers the questions of an exported page inside the browser, on the recording that the page holds. `make
// page` builds it, and internal/page/web/worker.js runs it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"syscall/js"

	"github.com/mbcas/mbcas/internal/page/figures"
	"github.com/mbcas/mbcas/internal/record"
)

// desk has the recording of the page, once it is open.
var desk *figures.Desk

func main() {
	js.Global().Set("mbcasOpen", js.FuncOf(func(_ js.Value, args []js.Value) any { return text(open(args[0])) }))
	js.Global().Set("mbcasAnswer", js.FuncOf(func(_ js.Value, args []js.Value) any {
		got, err := answer(args[0].String(), args[1].String())
		return map[string]any{"answer": got, "error": text(err)}
	}))
	select {} // the functions are called for as long as the page is open
}

// open takes the recording, the bytes of a file.
func open(file js.Value) error {
	data := make([]byte, file.Get("length").Int())
	js.CopyBytesToGo(data, file)
	rec, err := record.Open(bytes.NewReader(data))
	if err != nil {
		return err
	}
	source, err := figures.File(rec)
	if err != nil {
		return err
	}
	desk = figures.NewDesk(source)
	return nil
}

// answer answers a question as JSON.
func answer(question, query string) (string, error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		return "", err
	}
	got, err := desk.Answer(context.Background(), question, q)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(got)
	return string(data), err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
