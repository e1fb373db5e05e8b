package output

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mbcas/mbcas/internal/cli/format"
)

// ScreenOf finds the terminal that w is; nil: it is none.
func ScreenOf(w io.Writer) func() format.Screen {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return func() format.Screen {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return format.Screen{}
		}
		return format.Screen{Width: width, Height: height}
	}
}

// Show is how a command shows its view: the flags -o, --watch and --color.
type Show struct {
	Form  Form
	watch bool
	color colorMode
}

// colorMode is the value of --color.
type colorMode string

var colorModes = []string{"auto", "always", "never"}

func (c *colorMode) String() string { return string(*c) }

func (c *colorMode) Type() string { return "when" }

func (c *colorMode) Set(s string) error {
	if !slices.Contains(colorModes, s) {
		return fmt.Errorf("want one of %s", strings.Join(colorModes, ", "))
	}
	*c = colorMode(s)
	return nil
}

// Bind adds the flags. -o takes the given forms and those that suit each list.
func (s *Show) Bind(cmd *cobra.Command, forms ...Form) {
	s.Form.Bind(cmd, append(forms, JSON, YAML, Name, JSONPath, CustomColumns)...)
	s.color = "auto"
	cmd.Flags().BoolVarP(&s.watch, "watch", "w", false, "show it again every 5 s or more")
	cmd.Flags().Var(&s.color, "color", "color cells by their meaning: "+strings.Join(colorModes, ", ")+
		"; auto: on a terminal, unless NO_COLOR is set")
	_ = cmd.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colorModes, cobra.ShellCompDirectiveNoFileComp))
}

// style is that of text for the streams. -o wide is as wide as it is.
func (s *Show) style(streams format.Streams) format.Style {
	terminal := streams.Screen != nil
	style := format.Style{Color: s.color == "always"}
	if terminal && s.color == "auto" {
		style.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	if terminal && s.Form != Wide {
		style.Width = streams.Screen().Width
	}
	return style
}

// Bounds of a watch.
const (
	// interval is the least time between the end of a request and the next, and rest the least as a multiple of the time
	// that the request took: on a large cluster a watch asks less often.
	interval = 5 * time.Second
	rest     = 4
	// readTimeout bounds one request of a watch, and mostBackOff the wait after failures.
	readTimeout = 30 * time.Second
	mostBackOff = time.Minute
)

// Run reads the view and writes it, or again and again until ctx ends. Where the first read of a watch fails, that is
// the error; later failures are told, and the last picture stays.
func (s *Show) Run(ctx context.Context, streams format.Streams, read func(context.Context) (View, error)) error {
	if !s.watch {
		v, err := read(ctx)
		if err != nil {
			return err
		}
		return s.Form.Write(streams.Out, v, s.style(streams))
	}
	w := &watcher{show: s, streams: streams}
	for {
		begun := time.Now()
		err := w.once(ctx, read)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		wait := max(interval, rest*time.Since(begun), w.backOff)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// watcher is a watch between two reads.
type watcher struct {
	show    *Show
	streams format.Streams
	last    View // nil before the first
	backOff time.Duration
}

// once reads and writes the view. The error ends the watch.
func (w *watcher) once(ctx context.Context, read func(context.Context) (View, error)) error {
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	v, err := read(bounded)
	switch {
	case err == nil:
		w.last, w.backOff = v, 0
	case w.last == nil || ctx.Err() != nil:
		return err
	default:
		w.backOff = min(mostBackOff, max(2*interval, 2*w.backOff))
		return w.tell(fmt.Sprintf("%s; shown is what was read before; next try in %v", format.OneLine(err.Error()), w.backOff))
	}
	return w.tell("")
}

// tell draws the last view, with the failure since then.
func (w *watcher) tell(failure string) error {
	at := time.Now().UTC().Format("15:04:05 UTC")
	if w.streams.Screen == nil || !w.show.Form.text() {
		if failure != "" {
			fmt.Fprintf(w.streams.Err, "%s: %s\n", at, failure)
			return nil
		}
		if w.show.Form.text() {
			if _, err := fmt.Fprintf(w.streams.Out, "%s\n", at); err != nil {
				return err
			}
		}
		return w.show.Form.Write(w.streams.Out, w.last, w.show.style(w.streams))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, again every %v or more; Ctrl-C ends\n", at, interval)
	if failure != "" {
		b.WriteString(failure + "\n")
	}
	if err := w.show.Form.Write(&b, w.last, w.show.style(w.streams)); err != nil {
		return err
	}
	_, err := io.WriteString(w.streams.Out, picture(b.String(), w.streams.Screen()))
	return err
}

// picture draws text over the one before: what does not fit the screen is cut, and the last line counts the lines that
// are left out.
func picture(text string, screen format.Screen) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if most := max(2, screen.Height-1); screen.Height > 0 && len(lines) > most {
		left := len(lines) - most + 1
		lines = append(lines[:most-1], fmt.Sprintf("(%s more)", format.Plural(left, "line")))
	}
	var b strings.Builder
	b.WriteString("\x1b[H") // to the upper left
	for _, line := range lines {
		b.WriteString(cut(line, screen.Width) + "\x1b[K\n") // and erase to the end of the line
	}
	b.WriteString("\x1b[J") // erase below
	return b.String()
}

// cut keeps the first characters of a line. Escape sequences take no room and are kept.
func cut(line string, width int) string {
	if width <= 0 {
		return line
	}
	var b strings.Builder
	room, escape := width, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
			b.WriteRune(r)
		case escape:
			escape = r != 'm'
			b.WriteRune(r)
		case room > 0:
			room--
			b.WriteRune(r)
		}
	}
	return b.String()
}
