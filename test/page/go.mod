// The page of kubectl mbcas dashboard in a browser. A module of its own, so that programs do not depend on what drives it.
module github.com/mbcas/mbcas/test/page

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/mbcas/mbcas v0.0.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace github.com/mbcas/mbcas => ../..
