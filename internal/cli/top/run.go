package top

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
)

// Source reads what a Model asks for.
type Source struct {
	Now     func() time.Time
	Cluster func(context.Context) (Cluster, error)
	// Node gives the rounds of a node from a time on, or all from an earlier one on; zero: all.
	Node func(ctx context.Context, node string, from time.Time) ([]Round, error)
}

// readTimeout bounds one request.
const readTimeout = time.Minute

// Run shows the view on a terminal until the user quits or ctx ends. in and out are the terminal.
func Run(ctx context.Context, src Source, in io.Reader, out io.Writer) error {
	return run(ctx, src, tea.WithInput(in), tea.WithOutput(out))
}

func run(ctx context.Context, src Source, options ...tea.ProgramOption) error {
	_, err := tea.NewProgram(program{ctx: ctx, src: src}, append(options, tea.WithContext(ctx))...).Run()
	if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return err
}

// program runs a Model in bubbletea.
type program struct {
	ctx   context.Context
	src   Source
	model Model
}

// Init begins the ticks.
func (p program) Init() tea.Cmd { return p.tick(0) }

func (p program) tick(after time.Duration) tea.Cmd {
	return tea.Tick(after, func(time.Time) tea.Msg { return Tick(p.src.Now()) })
}

// Update gives the message to the model, and does what it asks for.
func (p program) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var own any = msg
	var cmds []tea.Cmd
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		own = Key(msg.String())
	case tea.WindowSizeMsg:
		own = Size{msg.Width, msg.Height}
	case Tick:
		cmds = append(cmds, p.tick(time.Second))
	}
	var requests []Request
	p.model, requests = p.model.Update(own)
	for _, r := range requests {
		cmds = append(cmds, p.command(r))
	}
	return p, tea.Batch(cmds...)
}

// command does what a request asks for.
func (p program) command(r Request) tea.Cmd {
	switch r := r.(type) {
	case ReadCluster:
		return func() tea.Msg {
			ctx, cancel := context.WithTimeout(p.ctx, readTimeout)
			defer cancel()
			c, err := p.src.Cluster(ctx)
			return ClusterRead{p.src.Now(), c, err}
		}
	case ReadNode:
		return func() tea.Msg {
			ctx, cancel := context.WithTimeout(p.ctx, readTimeout)
			defer cancel()
			rounds, err := p.src.Node(ctx, r.Node, r.From)
			return NodeRead{p.src.Now(), r.Node, rounds, err}
		}
	}
	return tea.Quit
}

// View is the frame on the alternate screen, so that the terminal has its text again afterwards.
func (p program) View() tea.View {
	v := tea.NewView(p.model.View())
	v.AltScreen = true
	return v
}
