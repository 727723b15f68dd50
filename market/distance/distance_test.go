package distance_test

import (
	"encoding/csv"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/market/distance"
	"github.com/lacuna-network/lacuna/scripts/requiretest"
)

func place(tb testing.TB, s string) market.Place {
	tb.Helper()
	if s == "" {
		return market.Place{}
	}
	p, err := market.ParsePlace(s)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

const ms = time.Millisecond

// sight returns a sighting by an observer in a range of its own.
func sight(tb testing.TB, from string, rtt time.Duration, who byte) distance.Sighting {
	return distance.Sighting{Observer: attest.Key{who}, Place: place(tb, from), RTT: rtt, Range: fmt.Sprint(who)}
}

func own(tb testing.TB, from string, rtt time.Duration) distance.Sighting {
	s := sight(tb, from, rtt, 0)
	s.Own = true
	return s
}

func trusted(s distance.Sighting) distance.Sighting { s.Trusted = true; return s }

func in(s distance.Sighting, r string) distance.Sighting { s.Range = r; return s }

func TestJudge(t *testing.T) {
	de := func(rtt time.Duration, who byte) distance.Sighting { return sight(t, "eu/de", rtt, who) }
	for _, tt := range []struct {
		name      string
		claim     string
		sightings []distance.Sighting
		want      bool
	}{
		{"nobody has seen it", "as/jp", nil, false},
		{"own round trip too short", "as/jp", []distance.Sighting{own(t, "eu/de", 12*ms)}, true},
		{"own round trip long enough", "as/jp", []distance.Sighting{own(t, "eu/de", 230*ms)}, false},
		{"own one not measured", "as/jp", []distance.Sighting{own(t, "eu/de", 0)}, false},
		{"own place unknown", "as/jp", []distance.Sighting{own(t, "", ms)}, false},
		{"claim unknown", "", []distance.Sighting{own(t, "eu/de", ms)}, false},
		{"same country", "eu/de/berlin", []distance.Sighting{own(t, "eu/de/munich", ms)}, false},
		{"neighbour", "eu/nl", []distance.Sighting{own(t, "eu/de", ms)}, false},
		{"continents", "sa", []distance.Sighting{own(t, "as", ms)}, true},
		{"continents that touch", "as", []distance.Sighting{own(t, "eu", ms)}, false},
		{"country that nobody has heard of", "sa/zz", []distance.Sighting{own(t, "eu/de", ms)}, true},
		{"one other", "as/jp", []distance.Sighting{trusted(de(12*ms, 1))}, false},
		{"two others", "as/jp", []distance.Sighting{trusted(de(12*ms, 1)), trusted(de(12*ms, 2))}, false},
		{"three others", "as/jp", []distance.Sighting{trusted(de(12*ms, 1)), de(12*ms, 2), de(13*ms, 3)}, true},
		{"three strangers", "as/jp", []distance.Sighting{de(12*ms, 1), de(12*ms, 2), de(12*ms, 3)}, false},
		{"a hundred strangers", "as/jp", slices.Repeat([]distance.Sighting{de(12*ms, 1), de(12*ms, 2), de(12*ms, 3), de(9*ms, 4)}, 25), false},
		{"three of one range", "as/jp", []distance.Sighting{in(trusted(de(12*ms, 1)), "a"), in(de(12*ms, 2), "a"), in(de(12*ms, 3), "a")}, false},
		{"three of two ranges", "as/jp", []distance.Sighting{in(trusted(de(12*ms, 1)), "a"), in(de(12*ms, 2), "a"), de(12*ms, 3)}, false},
		{"trusted one agrees with the claim", "as/jp", []distance.Sighting{trusted(de(230*ms, 1)), de(12*ms, 2), de(12*ms, 3), de(12*ms, 4)}, false},
		{"strangers cannot clear it", "as/jp", []distance.Sighting{own(t, "eu/de", 12*ms), de(230*ms, 1), de(230*ms, 2), de(230*ms, 3)}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := distance.Judge(place(t, tt.claim), tt.sightings)
			if got.Impossible != tt.want {
				t.Errorf("Judge = %v, want impossible %v", got, tt.want)
			}
			if !tt.want && got.String() != "possible" {
				t.Errorf("String = %q", got)
			}
		})
	}
}

func TestVerdictSaysWhy(t *testing.T) {
	mine, theirs := own(t, "eu/de", 12*ms), []distance.Sighting{
		trusted(sight(t, "eu/fr", 40*ms, 1)), sight(t, "eu/pl", 11500*time.Microsecond, 2), sight(t, "na/us", 9*ms, 3),
	}
	claim := place(t, "as/jp")
	apart := distance.Apart(mine.Place, claim)
	want := distance.Verdict{
		Impossible: true, Claim: claim, By: mine, Apart: apart, LeastRTT: time.Duration(apart) * time.Millisecond / 100, Voices: 3,
	}
	if diff := cmp.Diff(want, distance.Judge(claim, append(theirs, mine))); diff != "" {
		t.Errorf("with an own sighting (-want +got):\n%s", diff)
	}
	got := distance.Judge(claim, theirs)
	if got.By.Observer != (attest.Key{2}) || got.Voices != 3 {
		t.Errorf("Judge = %+v, want the observer that is furthest from possible, of three", got)
	}
	if want := fmt.Sprintf("claims as/jp, but answers from eu/pl in 12 ms: light needs %d ms", got.LeastRTT.Milliseconds()); got.String() != want {
		t.Errorf("String = %q, want %q", got, want)
	}
}

func TestApart(t *testing.T) {
	for _, tt := range []struct {
		a, b     string
		low, top int // km
	}{
		{"eu/de", "as/jp", 6000, 9300},
		{"eu/gb", "oc/au", 9000, 15000},
		{"eu/pt", "na/us", 2000, 6000},
		{"eu/fr", "oc/nc", 14000, 17000},
		{"oc/fr", "oc/nc", 0, 0},
		{"na/fr", "na/mq", 0, 0},
		{"eu/ru", "as/jp", 0, 0},
		{"as/ru", "eu/pl", 0, 0},
		{"as/fr", "oc/nc", 0, 0}, // it has no part there, so it may be any
		{"na/us/honolulu", "na/ca", 0, 0},
		{"oc/us", "eu/de", 9000, 13000},
		{"eu", "na", 0, 3000},
		{"an", "eu", 7000, 13000},
		{"eu/zz", "eu/de", 0, 0},
		{"", "eu/de", 0, 0},
	} {
		ab, ba := distance.Apart(place(t, tt.a), place(t, tt.b)), distance.Apart(place(t, tt.b), place(t, tt.a))
		if ab != ba || ab < tt.low || ab > tt.top {
			t.Errorf("Apart(%s, %s) = %d, the other way %d, want %d to %d", tt.a, tt.b, ab, ba, tt.low, tt.top)
		}
		if got := distance.LeastRTT(place(t, tt.a), place(t, tt.b)); got != time.Duration(ab)*10*time.Microsecond {
			t.Errorf("LeastRTT(%s, %s) = %v at %d km", tt.a, tt.b, got, ab)
		}
	}
}

func TestTable(t *testing.T) {
	countries := distance.Countries()
	if len(countries) < 245 {
		t.Errorf("%d countries, want about 250", len(countries))
	}
	for _, code := range countries {
		for _, c := range distance.Circles(code) {
			if c.Km <= 0 || c.Lat < -90 || c.Lat > 90 || c.Lon < -180 || c.Lon > 180 {
				t.Errorf("%s: circle %+v", code, c)
			}
			for _, continent := range strings.Fields(c.Continents) {
				place(t, continent+"/"+code)
			}
			if c.Continents == "" {
				t.Errorf("%s: circle on no continent", code)
			}
		}
	}
}

// Towns at the ends of their countries, and in far parts, by what people there would claim.
var towns = []struct {
	claim    string
	lat, lon float64
}{
	{"eu/de", 54.9, 8.3}, {"eu/de", 47.4, 10.3}, {"eu/fr/brest", 48.4, -4.5}, {"eu/fr/bonifacio", 41.4, 9.2}, {"na/fr", 14.6, -61.1},
	{"af/fr", -20.9, 55.5}, {"oc/fr", -17.5, -149.6}, {"oc/pf", -17.5, -149.6}, {"sa/gf", 4.9, -52.3}, {"eu/gb/lerwick", 60.2, -1.1},
	{"eu/gb/london", 51.5, -0.1}, {"eu/es/madrid", 40.4, -3.7}, {"eu/es/tenerife", 28.5, -16.3}, {"af/es/ceuta", 35.9, -5.3},
	{"eu/pt/lisbon", 38.7, -9.1}, {"eu/pt/ponta delgada", 37.7, -25.7}, {"eu/it/lampedusa", 35.5, 12.6}, {"eu/gr/rhodes", 36.4, 28.2},
	{"eu/no/tromso", 69.6, 18.9}, {"eu/sj", 78.2, 15.6}, {"eu/is", 64.1, -21.9}, {"eu/fi/utsjoki", 69.9, 27}, {"eu/se/kiruna", 67.9, 20.2},
	{"eu/ru/moscow", 55.8, 37.6}, {"as/ru/novosibirsk", 55, 82.9}, {"eu/ru/vladivostok", 43.1, 131.9}, {"as/ru/anadyr", 64.7, 177.5},
	{"eu/ru/kaliningrad", 54.7, 20.5}, {"eu/tr/istanbul", 41, 29}, {"as/tr/ankara", 39.9, 32.9}, {"eu/cy", 35.2, 33.4}, {"as/cy", 35.2, 33.4},
	{"eu/ua/kyiv", 50.5, 30.5}, {"as/ge", 41.7, 44.8}, {"eu/az", 40.4, 49.9}, {"as/kz/almaty", 43.2, 76.9}, {"eu/kz/oral", 51.2, 51.4},
	{"af/eg/cairo", 30, 31.2}, {"as/eg/sharm el sheikh", 27.9, 34.3}, {"as/il", 32.1, 34.8}, {"as/ae/dubai", 25.2, 55.3}, {"as/in/srinagar", 34.1, 74.8},
	{"as/in/chennai", 13.1, 80.3}, {"as/in/port blair", 11.6, 92.7}, {"as/cn/kashgar", 39.5, 76}, {"as/cn/sanya", 18.3, 109.5}, {"as/cn/harbin", 45.8, 126.5},
	{"as/jp/sapporo", 43.1, 141.4}, {"as/jp/naha", 26.2, 127.7}, {"as/kr", 37.6, 127}, {"as/sg", 1.35, 103.8}, {"as/id/banda aceh", 5.5, 95.3},
	{"oc/id/jayapura", -2.5, 140.7}, {"as/my/kuching", 1.6, 110.3}, {"as/ph/davao", 7.1, 125.6}, {"as/vn/hanoi", 21, 105.8}, {"as/hk", 22.3, 114.2},
	{"af/za/cape town", -33.9, 18.4}, {"af/ng/lagos", 6.5, 3.4}, {"af/ke/nairobi", -1.3, 36.8}, {"af/ma/dakhla", 23.7, -15.9}, {"af/cd/kinshasa", -4.3, 15.3},
	{"na/us/new york", 40.7, -74}, {"na/us/seattle", 47.6, -122.3}, {"na/us/key west", 24.6, -81.8}, {"na/us/anchorage", 61.2, -149.9},
	{"na/us/honolulu", 21.3, -157.9}, {"oc/us/honolulu", 21.3, -157.9}, {"oc/us/hagatna", 13.5, 144.8}, {"na/us/san juan", 18.5, -66.1},
	{"na/ca/vancouver", 49.3, -123.1}, {"na/ca/st john's", 47.6, -52.7}, {"na/ca/iqaluit", 63.7, -68.5}, {"na/mx/tijuana", 32.5, -117}, {"na/mx/cancun", 21.2, -86.8},
	{"na/gl/nuuk", 64.2, -51.7}, {"eu/dk", 55.7, 12.6}, {"na/cr", 9.9, -84.1}, {"sa/br/rio branco", -10, -67.8}, {"sa/br/recife", -8.1, -34.9},
	{"sa/br/porto alegre", -30, -51.2}, {"sa/ar/ushuaia", -54.8, -68.3}, {"sa/ar/salta", -24.8, -65.4}, {"sa/cl/punta arenas", -53.2, -70.9},
	{"oc/cl/hanga roa", -27.1, -109.4}, {"sa/ec/galapagos", -0.7, -90.3}, {"sa/co/leticia", -4.2, -69.9}, {"sa/pe/lima", -12, -77},
	{"oc/au/perth", -32, 115.9}, {"oc/au/hobart", -42.9, 147.3}, {"oc/au/darwin", -12.5, 130.8}, {"oc/nz/auckland", -36.8, 174.8},
	{"oc/nz/chatham", -44, -176.5}, {"oc/fj", -18.1, 178.4}, {"oc/ki", 1.9, -157.4}, {"an/aq", -77.8, 166.7}, {"eu", 47.5, 19.1}, {"as", 24.7, 46.7},
	{"af", -26.2, 28}, {"na", 19.4, -99.1}, {"sa", -34.6, -58.4}, {"oc", -33.9, 151.2}, {"as", -6.2, 106.8}, {"eu", 28.1, -15.4},
}

// No two towns are called nearer to each other, or further from each other, than light lets them be.
func TestTowns(t *testing.T) {
	judged := 0
	for _, a := range towns {
		for _, b := range towns {
			km := distance.Km(a.lat, a.lon, b.lat, b.lon)
			apart := distance.Apart(place(t, a.claim), place(t, b.claim))
			if float64(apart) > km {
				t.Errorf("%s and %s are %.0f km apart, Apart says at least %d", a.claim, b.claim, km, apart)
			}
			if apart > 0 {
				judged++
			}
		}
	}
	if share := float64(judged) / float64(len(towns)*len(towns)); share < 0.7 {
		t.Errorf("only %.0f %% of the pairs have a bound at all", 100*share)
	}
}

// Whoever says the truth is never called impossible, by however many observers, wherever in their countries both sides
// are, and however near to light the round trips are.
func TestTruthIsPossible(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	countries := distance.Countries()
	slices.Sort(countries)
	somewhere := func() (market.Place, float64, float64) {
		code := countries[r.IntN(len(countries))]
		circles := distance.Circles(code)
		c := circles[r.IntN(len(circles))]
		continents := strings.Fields(c.Continents)
		p := market.Place{Continent: continents[r.IntN(len(continents))], Country: code}
		if r.IntN(4) == 0 {
			p.Country = "" // it does not say
		}
		lat, lon := walk(c.Lat, c.Lon, 360*r.Float64(), c.Km*math.Sqrt(r.Float64()))
		return p, lat, lon
	}
	for range 2000 {
		claim, lat, lon := somewhere()
		var sightings []distance.Sighting
		for i := range 1 + r.IntN(12) {
			from, olat, olon := somewhere()
			rtt := time.Duration(math.Ceil(distance.Km(lat, lon, olat, olon) / distance.KmPerMs * float64(ms)))
			sightings = append(sightings, distance.Sighting{
				Observer: attest.Key{byte(i)}, Range: fmt.Sprint(i), Place: from, RTT: max(rtt, 1), Trusted: true, Own: r.IntN(2) == 0,
			})
		}
		if v := distance.Judge(claim, sightings); v.Impossible {
			t.Fatalf("%v: at %.1f, %.1f it is true", v, lat, lon)
		}
	}
}

// walk returns the point km away in a direction.
func walk(lat, lon, bearing, km float64) (float64, float64) {
	const rad = math.Pi / 180
	d, lat, lon, bearing := km/6371, lat*rad, lon*rad, bearing*rad
	to := math.Asin(math.Sin(lat)*math.Cos(d) + math.Cos(lat)*math.Sin(d)*math.Cos(bearing))
	return to / rad, (lon + math.Atan2(math.Sin(bearing)*math.Sin(d)*math.Cos(lat), math.Cos(d)-math.Sin(lat)*math.Sin(to))) / rad
}

// measuredVar names a folder with cities_open.csv (city, country, latitude, longitude) and rtt_cities_open.csv (from,
// to, average and least round trip in ms): round trips as measured between servers in cities.
const measuredVar = "LACUNA_ROUND_TRIPS"

var cityPlaces = map[string]string{
	"Amsterdam": "eu/nl", "Frankfurt": "eu/de", "London": "eu/gb", "Paris": "eu/fr", "Stockholm": "eu/se", "Warsaw": "eu/pl", "Madrid": "eu/es",
	"Milan": "eu/it", "Istanbul": "eu/tr", "Moscow": "eu/ru", "New York": "na/us", "Chicago": "na/us", "Dallas": "na/us", "Los Angeles": "na/us",
	"San Francisco": "na/us", "Seattle": "na/us", "Toronto": "na/ca", "Atlanta": "na/us", "Sao Paulo": "sa/br", "Buenos Aires": "sa/ar",
	"Johannesburg": "af/za", "Lagos": "af/ng", "Dubai": "as/ae", "Bangalore": "as/in", "Singapore": "as/sg", "Tokyo": "as/jp", "Hong Kong": "as/hk",
	"Sydney": "oc/au", "Seoul": "as/kr",
}

func TestMeasuredRoundTrips(t *testing.T) {
	dir := os.Getenv(measuredVar)
	if dir == "" {
		requiretest.Skip(t, "round-trips", measuredVar+" names no folder of measured round trips")
	}
	rows := readCSV(t, filepath.Join(dir, "rtt_cities_open.csv"))
	if len(rows) < 100 {
		t.Fatalf("%d rows", len(rows))
	}
	seen := make(map[string][]distance.Sighting) // by the city that was measured
	for i, row := range rows {
		from, to := cityPlaces[row[0]], cityPlaces[row[1]]
		rtt, err := strconv.ParseFloat(row[3], 64)
		if from == "" || to == "" || err != nil {
			t.Fatalf("row %v: %q, %q, %v", row, from, to, err)
		}
		if rtt <= 0 {
			continue
		}
		s := sight(t, from, time.Duration(rtt*float64(ms)), 1)
		s.Range, s.Own, s.Trusted = fmt.Sprint(i), true, true
		if v := distance.Judge(place(t, to), []distance.Sighting{s}); v.Impossible {
			t.Errorf("%s in %s, measured from %s: %v", row[1], to, row[0], v)
		}
		s.Own = false
		seen[row[1]] = append(seen[row[1]], s)
	}
	lies, found := 0, 0
	for city, sightings := range seen {
		for _, lie := range cityPlaces {
			if lie[:2] == cityPlaces[city][:2] { // only lies about the continent
				continue
			}
			lies++
			if distance.Judge(place(t, lie), sightings).Impossible {
				found++
			}
		}
	}
	t.Logf("%d true pairs; of %d claims to be on another continent, 28 observers find %.1f %%", len(rows), lies, 100*float64(found)/float64(lies))
	if found == 0 {
		t.Error("no false claim was found")
	}
}

func readCSV(t *testing.T, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows[1:]
}

func BenchmarkJudgeContinents(b *testing.B) {
	sightings := []distance.Sighting{own(b, "oc", 300*ms)}
	for b.Loop() {
		distance.Judge(market.Place{Continent: "sa"}, sightings)
	}
}
