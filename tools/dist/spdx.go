package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// document is a bill of materials in the form SPDX 2.3.
type document struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	SPDXID            string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creation       `json:"creationInfo"`
	Packages          []module       `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// module is a program, or a Go module in it.
type module struct {
	SPDXID           string      `json:"SPDXID"`
	Name             string      `json:"name"`
	Version          string      `json:"versionInfo"`
	DownloadLocation string      `json:"downloadLocation"`
	FilesAnalyzed    bool        `json:"filesAnalyzed"`
	LicenseConcluded string      `json:"licenseConcluded"`
	LicenseDeclared  string      `json:"licenseDeclared"`
	CopyrightText    string      `json:"copyrightText"`
	ExternalRefs     []reference `json:"externalRefs,omitempty"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

// unlike are the characters that an identifier of SPDX does not have.
var unlike = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func newModule(name, version, licence string) module {
	return module{
		SPDXID: "SPDXRef-" + unlike.ReplaceAllString(name+"-"+version, "-"), Name: name, Version: version,
		DownloadLocation: "NOASSERTION", LicenseConcluded: "NOASSERTION", LicenseDeclared: licence,
		CopyrightText: "NOASSERTION",
	}
}

// spdx lists the modules in a program for linux/amd64, as Go recorded them in it.
func (r release) spdx(name string) ([]byte, error) {
	program, err := r.compile(r, platform{"linux", "amd64"}, name)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("read the modules of the program: %w", err)
	}
	root := newModule(name, r.version, "Apache-2.0")
	d := document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", Name: name + "-" + r.version,
		DocumentNamespace: fmt.Sprintf("https://github.com/mbcas/mbcas/spdx/%s-%s-%s", name, r.version, sum(program)),
		CreationInfo: creation{
			Created:  r.made.Format(time.RFC3339),
			Creators: []string{"Tool: mbcas-dist-" + r.version, "Organization: MBCAS"},
		},
		Packages:      []module{root},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", root.SPDXID}},
	}
	add := func(path, version string) {
		m := newModule(path, version, "NOASSERTION")
		m.ExternalRefs = []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}}
		d.Packages = append(d.Packages, m)
		d.Relationships = append(d.Relationships, relationship{root.SPDXID, "DEPENDS_ON", m.SPDXID})
	}
	add("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		add(dep.Path, dep.Version)
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}
