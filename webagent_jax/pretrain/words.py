"""Words and phrases of generated pages and instructions."""

from __future__ import annotations

import numpy as np

# English words, then the words of lorem ipsum.
COMMON = tuple(
    """
    about above accept account across action active activity add address after again age agree air
    album all allow also amount and animal answer any apple apply archive area around arrive art
    article ask at attach author auto available away baby back bag balance ball bank bar base
    basic basket battery be beach bear beauty because become bed before begin below best better
    between big bike bill bird birthday black blue board boat body book booking both bottom bowl
    box boy branch bread break bridge bright bring brown browse budget build bus business busy
    butter button buy by cake calendar call camera camp can cancel candle car card care cart case
    cash cat category cell center chair chance change channel chapter charge chart chat cheap
    check cheese chest child choice choose church circle city class clean clear clock close cloth
    cloud club coat code coffee coin cold collect color column come comment common company compare
    complete computer confirm contact content continue control cook copy corner cost cotton count
    country course cover create credit cross cup current customer cut cycle daily dance dark data
    date day deal dear deep default delete deliver delivery depth desk detail device dinner direct
    discount dish display do doctor document dog door double down download draft draw dream dress
    drink drive drop dry due dust each ear early earth east easy edit egg eight email empty end
    energy engine enjoy enter entry equal error even evening event every exam example except exit
    expand expert export extra eye face fact fair fall family famous fan far farm fast father
    favorite feature fee feed field fifty file fill film filter final find fine finish fire first
    fish fit five fix flag flat flight floor flower fly folder follow food foot for forest forget
    form forward four frame free fresh friday friend from front fruit full fun game garden gate
    general get gift girl give glass go goal gold good grade grand grass great green grey ground
    group grow guest guide hair half hall hand happy hard hat have head health heart heavy height
    hello help here hide high hill history hold hole holiday home honey hope horse hospital host
    hot hotel hour house how human hundred ice icon idea if image import in inbox index info input
    inside install into invite iron island issue item jacket job join juice july june just keep
    key kind king kitchen knee know label lake lamp land language large last late laugh law layer
    lead leaf learn leave left leg lemon lesson letter level library life light like limit line
    link list listen little live load local location lock log logo long look lost lot love low
    luck lunch machine mail main make man manage many map march mark market master match math may
    meal meat media medical meeting member memory menu message metal method middle milk million
    mind mine minute mirror miss mobile mode model monday money monitor month moon more morning
    most mother motor mountain mouse mouth move movie much music my name narrow nature near neck
    need never new news next nice night nine no none noon normal north nose not note notice now
    number ocean of off offer office oil old on once one onion only open option or orange order
    other our out outside over owner pack page paint pair pan paper parent park part party pass
    password past path pay payment pen people pepper percent period person phone photo piano
    picture piece pilot pink pipe place plan plane plant plate play player please plus pocket
    point police policy poor popular port post pot power present press price print private problem
    product profile program project promise public pull purple push put quality queen question
    quick quiet radio rain random range rate rating read ready real reason receipt recent record
    red refund region register reject release remember remove rent repair reply report request
    reserve reset rest result return review rice rich ride right ring river road rock role roll
    roof room root round route row rule run safe sale salt same sand saturday save say scale
    school science score screen sea search season seat second section secure see select self sell
    send september series serve service set settings seven shape share sheet shelf ship shirt shoe
    shop short should show side sign signal silver simple since single sister site six size skill
    skin sky sleep slow small smart smile smoke smooth snow so soap soft some son song soon sort
    sound soup south space special speed spell spend spoon sport spot spring square stage stair
    stamp stand star start state station status stay steel step stick still stock stone stop store
    storm story straight street strong student study style subject submit sugar suit summer sun
    sunday supply support sure switch system table tag take talk tall task tax tea teach team ten
    tent term test text than thank that the theater them then there these thick thin thing third
    this thousand three thursday ticket tie time tiny title to today together tomorrow tool tooth
    top total touch tour toward tower town toy track trade train travel tree trial trip true trust
    try tuesday turn twelve twenty two type under unit until up update upload upper use user
    username value vegetable version very video view village visit voice volume vote wait walk
    wall want warm wash watch water wave way weather website wednesday week weight welcome well
    west wheel when where which white who wide wife wild will win wind window winter wire wish
    with without woman wood wool word work world write wrong yard year yellow yes yesterday yet
    you young your zero zone amet ante arcu bibendum consectetur consequat cras cum diam dictum
    dolor donec egestas eget elit enim erat est et euismod facilisis faucibus fermentum fusce
    gravida habitant iaculis id imperdiet integer ipsum justo lacus lectus leo libero ligula
    lobortis lorem luctus maecenas magna malesuada massa mattis mauris metus mollis morbi nam nec
    neque nibh nisi non nulla nunc odio orci ornare pellentesque pharetra placerat porta posuere
    praesent pretium proin pulvinar purus quam quis risus rutrum sagittis sapien scelerisque sed
    sem semper sit sodales suscipit suspendisse tellus tempor tempus tincidunt tortor tristique
    turpis ullamcorper ultrices urna ut varius vehicula vel velit venenatis vestibulum vitae
    vivamus viverra volutpat vulputate
    """.split()
)

NAMES = tuple(
    """
    Ada Agnes Alan Albert Alma Amina Andre Anton Arthur Astrid Beatrix Bella Ben Bruno Carla
    Cedric Clara Colin Daniel Daria Dora Edgar Eleanor Elsa Emil Erik Esther Felix Fiona Florence
    Franz Gemma Gerard Greta Gustav Hana Harold Heidi Helena Hugo Ida Ines Ingrid Irene Isaac Ivan
    Jana Jasper Joan Jonas Julia Karim Katja Klara Lars Laura Leon Lina Louis Lucia Magnus Marta
    Matilda Milo Mina Mohammed Nadia Nils Nora Olga Oscar Otto Paula Pedro Petra Quentin Ravi Rita
    Robert Rosa Ruben Ruth Samuel Sara Selma Simon Sofia Stefan Sven Tamara Theo Tobias Ursula
    Vera Victor Wanda Werner Xenia Yara Yusuf Zoe
    """.split()
)

PLACES = tuple(
    """
    Argentina Austria Bali Belgium Berlin Bolivia Boston Brazil Cairo Canada Chad Chile China Cuba
    Delhi Denmark Dublin Egypt Estonia Finland France Georgia Germany Ghana Greece Haiti Hungary
    Iceland India Iran Ireland Israel Italy Jamaica Japan Jordan Kenya Korea Laos Latvia Lima
    London Madrid Malta Mexico Milan Monaco Morocco Nepal Norway Oslo Panama Paris Peru Poland
    Portugal Qatar Rome Russia Samoa Senegal Serbia Spain Sudan Sweden Syria Taiwan Texas Tokyo
    Tonga Tunisia Turkey Uganda Ukraine Utah Vienna Yemen York Zambia
    """.split()
)

_ONSETS = (
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl l m n p ph pl pr qu r s sc sh sl sp st t th "
    "tr v w y z"
).split()
_VOWELS = "a e i o u ai ea ee ie oo ou ia io".split()
_CODAS = ["", "", "", *"b ck d g l m n nd ng p r rt s ss st t x z".split()]
_ALPHABET = np.array(list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))


def pick(rng: np.random.Generator, items: tuple[str, ...] | list[str]) -> str:
    """Return one of the items, drawn uniformly."""
    return items[int(rng.integers(len(items)))]


def invent_word(rng: np.random.Generator) -> str:
    """Return an invented word of one to four syllables."""
    return "".join(
        pick(rng, _ONSETS) + pick(rng, _VOWELS) + pick(rng, _CODAS)
        for _ in range(int(rng.integers(1, 5)))
    )


def code(rng: np.random.Generator) -> str:
    """Return random letters and digits, as in passwords and order numbers."""
    return "".join(rng.choice(_ALPHABET, int(rng.integers(2, 8))))


def number(rng: np.random.Generator) -> str:
    """Return a number, price, date, time or telephone number as text."""
    form = int(rng.integers(5))
    n = int(rng.integers(0, 10 ** int(rng.integers(1, 5))))
    day, month, year = rng.integers(1, 29), rng.integers(1, 13), rng.integers(1990, 2030)
    return (
        str(n),
        f"${n}.{rng.integers(100):02d}",
        f"{month:02d}/{day:02d}/{year}",
        f"{rng.integers(1, 13)}:{rng.integers(60):02d} {'AM' if rng.random() < 0.5 else 'PM'}",
        f"{rng.integers(100, 1000)}-{rng.integers(1000, 10000)}",
    )[form]


def vary_case(rng: np.random.Generator, text: str) -> str:
    """Return the text capitalized, in upper case or unchanged."""
    form = rng.random()
    if form < 0.45:
        return text[:1].upper() + text[1:]
    return text.upper() if form < 0.52 else text


def phrase(rng: np.random.Generator) -> str:
    """Return one to three words: a name of a button, link or field, or text to type."""
    form = rng.random()
    # 40 % common words, 22 % invented, 13 % names, 7 % places, 14 % codes, 4 % numbers.
    if form < 0.40:
        words = [pick(rng, COMMON) for _ in range(int(rng.integers(1, 4)))]
        text = vary_case(rng, " ".join(words))
        return text + pick(rng, [",", ".", ":"]) if rng.random() < 0.08 else text
    if form < 0.62:
        return vary_case(rng, invent_word(rng))
    if form < 0.75:
        return pick(rng, NAMES) if rng.random() < 0.8 else f"@{pick(rng, NAMES).lower()}"
    if form < 0.82:
        return pick(rng, PLACES)
    return code(rng) if form < 0.96 else number(rng)


def sentence(rng: np.random.Generator) -> str:
    """Return a sentence of common and invented words."""
    words = [
        pick(rng, COMMON) if rng.random() < 0.85 else invent_word(rng)
        for _ in range(int(rng.integers(3, 12)))
    ]
    return vary_case(rng, " ".join(words)) + pick(rng, [".", ".", ":", "", "?", "!"])
