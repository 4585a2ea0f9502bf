package webui

import (
	"bytes"
	"cmp"
	"html/template"
	"image"
	"image/color"
	"image/png"
	"maps"
	"net/http"
	"net/http/httptest"
	netmail "net/mail"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// reader is what a mail program draws around a mail: all of it comes from the mail itself.
var reader = template.Must(template.New("reader").Parse(`<!DOCTYPE html><meta charset="utf-8"><style>
body { margin: 0; font: 15px/1.45 "Liberation Sans", Arial, sans-serif; color: #1f2430; background: #fff }
header { padding: 20px 24px 16px; border-bottom: 1px solid #e3e6ec; background: #f7f8fa }
h1 { margin: 0 0 14px; font-size: 19px; font-weight: 600; letter-spacing: -.01em }
.from { display: grid; grid-template-columns: 40px 1fr auto; gap: 0 12px; align-items: center }
.face { grid-row: span 2; width: 40px; height: 40px; border-radius: 50%; background: #2457a8; color: #fff; font-weight: 600; text-align: center; line-height: 40px }
.to, time, .address { color: #5b6475; font-size: 13px }
iframe { display: block; width: 100%; border: 0; padding: 8px 8px 4px; box-sizing: border-box }
</style>
<header><h1>{{.Subject}}</h1>
<div class="from"><span class="face">H</span><span><b>{{.From.Name}}</b> <span class="address">&lt;{{.From.Address}}&gt;</span></span><time>{{.Date}}</time><span class="to">to {{.To}}</span></div></header>
<iframe sandbox="allow-same-origin" srcdoc="{{.HTML}}"></iframe>`))

// The pictures of docs/people.md. To make them anew, on a machine with Chromium:
//
//	HANDCLASP_SCREENSHOTS=docs go test ./internal/webui -count=1 -run Screenshots
//
// The name is that of a folder in the repository.
func TestScreenshotsForTheDocuments(t *testing.T) {
	folder := os.Getenv("HANDCLASP_SCREENSHOTS")
	if folder == "" {
		t.Skip("HANDCLASP_SCREENSHOTS names no folder")
	}
	folder = filepath.Join("..", "..", folder)
	b := startChromium(t)
	call(b, emulation.SetScrollbarsHidden, emulation.SetScrollbarsHiddenParams{Hidden: true})
	b.scheme("light")

	f := hubtest.New(t, "sqlite", hubtest.WithMail(), hubtest.WithHub(func(c *hub.Config) { c.PublicURL = "https://hub.example.com" }))
	f.Shop()
	name := "The Corner Shop"
	if _, err := f.Hub.EditBusiness(t.Context(), hubtest.Operator(), hub.BusinessInput{Slug: "shop", Name: &name}); err != nil {
		t.Fatal(err)
	}
	box := mailboxOf(t, f)
	_, err := f.Hub.Initiate(t.Context(), f.Agent("bot@shop"), hub.InitiateInput{
		Slug: "shop", Mode: "human", IdempotencyKey: "k", Urgency: "high",
		Reason:      "The rear brake of the bike I collected on Saturday rubs, and I ride it to work. Can somebody look at it today? A picture: www.pictures.example/brake",
		ContactName: "Carl Berger", ContactEmail: "carl@example.com", ContactPhone: "030 901820", ReservationID: "R-2417", AgentLabel: "corner-shop assistant",
	})
	if err != nil {
		t.Fatal(err)
	}
	mail := box.read(t, 1)
	from, err := netmail.ParseAddress(mail.header.Get("From"))
	if err != nil {
		t.Fatal(err)
	}
	date, err := mail.header.Date()
	if err != nil {
		t.Fatal(err)
	}
	var shown bytes.Buffer
	if err := reader.Execute(&shown, map[string]any{"Subject": mail.header.Get("Subject"), "From": from, "To": "Ann", "Date": date.Format("Mon 2 Jan, 15:04"), "HTML": mail.html}); err != nil {
		t.Fatal(err)
	}
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(shown.Bytes()) }))
	defer program.Close()
	b.do(chromedp.EmulateViewport(640, 400, chromedp.EmulateScale(2)), chromedp.Navigate(program.URL))
	// Programs open a frame as far as the mail is long.
	height := eval[int64](b, `(() => { const f = document.querySelector("iframe"); f.style.height = f.contentDocument.documentElement.scrollHeight + 12 + "px"; return document.documentElement.scrollHeight; })()`)
	b.do(chromedp.EmulateViewport(640, height, chromedp.EmulateScale(2)))
	b.picture(filepath.Join(folder, "people-mail.png"), 640, height)

	token := mail.link[len("https://hub.example.com/h/"):]
	b.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateScale(2)), chromedp.Navigate(mounted(t, f)+"/h/"+token))
	// A phone has a better face for system-ui than a server.
	eval[string](b, `document.documentElement.style.setProperty("--sans", '"Liberation Sans"') || ""`)
	b.picture(filepath.Join(folder, "people-page.png"), 390, 844)
}

// indexed draws img with the 256 colours that it has most of; ours have few others.
func indexed(img image.Image) *image.Paletted {
	count := map[color.RGBA]int{}
	each := func(do func(x, y int, c color.RGBA)) {
		for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
			for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
				do(x, y, color.RGBAModel.Convert(img.At(x, y)).(color.RGBA))
			}
		}
	}
	each(func(_, _ int, c color.RGBA) { count[c]++ })
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(count[b]-count[a], bytes.Compare([]byte{a.R, a.G, a.B}, []byte{b.R, b.G, b.B}))
	})
	var palette color.Palette
	for _, c := range colours[:min(256, len(colours))] {
		palette = append(palette, c)
	}
	nearest := map[color.RGBA]uint8{}
	for c := range count {
		nearest[c] = uint8(palette.Index(c))
	}
	out := image.NewPaletted(img.Bounds(), palette)
	each(func(x, y int, c color.RGBA) { out.SetColorIndex(x, y, nearest[c]) })
	return out
}

// picture writes what the browser shows.
func (b *chromium) picture(path string, width, height int64) {
	b.t.Helper()
	shot := call(b, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{
		Format: cdppage.CaptureScreenshotFormatPng, Clip: &cdppage.Viewport{Width: float64(width), Height: float64(height), Scale: 1},
	})
	img, err := png.Decode(bytes.NewReader(shot.Data))
	if err != nil {
		b.t.Fatal(err)
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, indexed(img)); err != nil {
		b.t.Fatal(err)
	}
	const most = 120 << 10
	if small.Len() > most {
		b.t.Errorf("%s has %d bytes, more than %d", path, small.Len(), most)
	}
	if err := os.WriteFile(path, small.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.t.Logf("%s: %d bytes, %d by %d", path, small.Len(), img.Bounds().Dx(), img.Bounds().Dy())
}
